"""Language codes, as Wikipedia has them in its addresses.

A corpus's language may also be written with a region (`de_AT`, `zh-CN`, `sr-Latn`), in capitals, or
as ISO 639's code of three letters (`deu`). Tables of languages are read with `wikipedia_code`.
"""

from functools import lru_cache

# Its codes with a hyphen: languages of their own, whose first part would be another language.
_OWN = frozenset(
    (
        "bat-smg",
        "be-tarask",
        "be-x-old",
        "cbk-zam",
        "fiu-vro",
        "map-bms",
        "nds-nl",
        "roa-rup",
        "roa-tara",
        "zh-classical",
        "zh-min-nan",
        "zh-yue",
    )
)

# Two letters, and the codes of three letters with the same meaning: those of ISO 639-2, and of
# ISO 639-3 for the usual form of a macrolanguage (`cmn`). `als` is Alemannic in Wikipedia.
_CODES = """
aa:aar ab:abk ae:ave af:afr ak:aka am:amh an:arg ar:ara,arb as:asm av:ava ay:aym,ayr az:aze,azj
ba:bak be:bel bg:bul bi:bis bm:bam bn:ben bo:bod,tib br:bre bs:bos ca:cat ce:che ch:cha co:cos
cr:cre,cwd cs:ces,cze cu:chu cv:chv cy:cym,wel da:dan de:deu,ger dv:div dz:dzo ee:ewe el:ell,gre
en:eng eo:epo es:spa et:ekk,est eu:baq,eus fa:fas,per,pes ff:fuc,ful fi:fin fj:fij fo:fao
fr:fra,fre fy:fry ga:gle gd:gla gl:glg gn:grn,gug gu:guj gv:glv ha:hau he:heb hi:hin ho:hmo
hr:hrv,scr ht:hat hu:hun hy:arm,hye hz:her ia:ina id:ind ie:ile ig:ibo ii:iii ik:esk,ipk io:ido
is:ice,isl it:ita iu:ike,iku ja:jpn jv:jav ka:geo,kat kg:kng,kon ki:kik kj:kua kk:kaz kl:kal
km:khm kn:kan ko:kor kr:kau,knc ks:kas ku:kmr,kur kv:kom,kpv kw:cor ky:kir la:lat lb:ltz lg:lug
li:lim ln:lin lo:lao lt:lit lu:lub lv:lav,lvs mg:mlg,plt mh:mah mi:mao,mri mk:mac,mkd ml:mal
mn:khk,mon mr:mar ms:may,msa,zsm mt:mlt my:bur,mya na:nau nb:nob nd:nde ne:nep,npi ng:ndo
nl:dut,nld nn:nno no:nor nr:nbl nv:nav ny:nya oc:oci oj:ojg,oji om:gaz,orm or:ori,ory os:oss
pa:pan pi:pli pl:pol ps:pbu,pus pt:por qu:que,quz rm:roh rn:run ro:mol,ron,rum ru:rus rw:kin
sa:cls,san sc:src,srd sd:snd se:sme sg:sag sh:hbs si:sin sk:slk,slo sl:slv sm:smo sn:sna so:som
sq:alb,sqi sr:scc,srp ss:ssw st:sot su:sun sv:swe sw:swa,swh ta:tam te:tel tg:tgk th:tha ti:tir
tk:tuk tn:tsn to:ton tr:tur ts:tso tt:tat ty:tah ug:uig uk:ukr ur:urd uz:uzb,uzn ve:ven vi:vie
vo:vol wa:wln wo:wol xh:xho yi:ydd,yid yo:yor za:zha,zyb zh:chi,cmn,zho zu:zul
"""
_PAIRS = (entry.split(":") for entry in _CODES.split())
_THREE_LETTERS = {code: two for two, codes in _PAIRS for code in codes.split(",")}


@lru_cache(maxsize=256)
def wikipedia_code(language: str) -> str:
    """Return the code that tables of languages have: `de` for `de_AT`, `DE` and `deu`.

    Codes of Wikipedia with a hyphen are kept: `zh-yue`, `be-tarask`.
    """
    code = language.lower().replace("_", "-")
    if code in _OWN:
        return code
    base = code.partition("-")[0]
    return _THREE_LETTERS.get(base, base)


def base_code(language: str) -> str:
    """Return the first part of `wikipedia_code`: `zh` for `zh-yue`."""
    return wikipedia_code(language).partition("-")[0]
