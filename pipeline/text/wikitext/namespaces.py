"""Language-dependent words of wikitext: namespaces, redirects, section titles.

A dump lists its namespaces but not their aliases, and an article copied from another language keeps
that language's words. These lists therefore hold the words of all larger Wikipedias; none of them
has another meaning before a colon or as a section title.
"""

_FILES = """
file image archivo imagen attēls berkas gambar bestand afbeelding datei bild dosiero dosya resim
fájl kép fasciculus imago fichier fil billede fitxategi irudi fitxer imatge imagem ficheiro arquivo
imaxe imej immagine larawan talaksan lêer beeld plik grafika restr skeudenn slika datoteka obrázek
soubor súbor obrázok wêne wobraz dataja tiedosto kuva pilt fail vaizdas tập_tin hình hình_ảnh mynd
skrá fișier imagine skedari figura ficheru imaxen fayl şəkil файл изображение выява зображення файле
слика датотека податотека картинка сүрөт сурет рәсем αρχείο εικόνα պատկեր სურათი ფაილი קובץ תמונה
ملف صورة پرونده تصویر وێنە دوتنه चित्र चित्र_फ़ाइल संचिका চিত্র ছবি ਤਸਵੀਰ ફાઇલ படிமம் படம் దస్త్రం
ಚಿತ್ರ പ്രമാണം ചിത്രം ගොනුව රූපය ไฟล์ ภาพ ຮູບ ဖိုင် រូបភាព 파일 그림 ファイル 画像 文件 檔案 档案
图像 圖像 图片 圖片 文檔 fails medeja
"""

_CATEGORIES = """
category categoría categoria categorie catégorie catègorie categuria catigurìa kategorie kategori
kategorî kategoria kategória kategooria kategorija kategorio kategoriýa kategorya kateqoriya
kategorij kategory kategoreja kategorěja flokkur bólkur luokka categori rummad turkum klad jamii
kaarangay thể_loại категория категорія катэгорыя категорија төркем санат κατηγορία կատեգորիա
კატეგორია קטגוריה تصنيف رده زمرہ پۆل श्रेणी वर्ग বিষয়শ্রেণী ਸ਼੍ਰੇਣੀ શ્રેણી பகுப்பு వర్గం ವರ್ಗ
വർഗ്ഗം ප්‍රවර්ගය หมวดหมู่ ໝວດ ကဏ္ဍ 분류 カテゴリ 分类 分類
"""

_REDIRECTS = """
redirect redirection redirección redireccion redirecionamento redirecció rinvia rimando
weiterleitung
doorverwijzing omdirigering omdiriger viderestilling ohjaus uudelleenohjaus suunamine
pāradresācija peradresavimas patrz przekieruj tam přesměruj presmeruj átirányítás preusmeri
preusmjeri trimite yönlendirme yönlendi̇rme i̇stiqamətləndirmə alih lencong đổi adkas ailgyfeirio
birzuzendu beralîkirin tilvísun alidirekto перенаправление перенапр перенаправлення
перанакіраваньне перанакіраванне преусмери преусмјери пренасочване виж пренасочување айдау
ανακατευθυνση վերահղում გადამისამართება הפניה تحويل تغییرمسیر تغییر_مسیر رجوع_مکرر
अनुप्रेषित पुनर्निर्देशन পুনর্নির্দেশনা পুনর্নির্দেশ வழிமாற்று దారిమార్పు යළියොමුව เปลี่ยนทาง
넘겨주기 リダイレクト 転送 重定向 重新導向
"""

# Sections of references, links and reading lists, not prose.
_LINK_SECTIONS = """
references; reference; notes; notes and references; references and notes; notes & references;
references & notes; footnotes; citations; cited sources; sources; source; works cited;
general references; references and sources; references and further reading; notes and citations;
bibliography; selected bibliography; literature; further reading; additional reading; see also;
external links; external link; external links and references; links; related pages;
other websites; related websites; more reading; image gallery; gallery
einzelnachweise; weblinks; siehe auch; literatur; anmerkungen; quellen; fußnoten; belege;
einzelnachweise und anmerkungen; anmerkungen und einzelnachweise; quellen und einzelnachweise;
weblinks und quellen; literatur und quellen; weiterführende literatur; galerie; bilder
références; notes et références; voir aussi; liens externes; lien externe; bibliographie; notes;
articles connexes; annexes; sources; notes et sources; liens internes; références et notes
referencias; véase también; enlaces externos; enlace externo; bibliografía; notas; fuentes;
notas y referencias; referencias y notas; lectura adicional; galería
referências; ver também; ligações externas; ligação externa; bibliografia; notas e referências;
notas; fontes; leitura adicional; galeria
note; riferimenti; voci correlate; collegamenti esterni; altri progetti; bibliografia; fonti;
note e riferimenti
referenties; bronnen; zie ook; externe links; externe link; literatuur; noten; voetnoten;
bronnen, noten en/of referenties; bronnen en referenties; noten en referenties; externe koppelingen
przypisy; zobacz też; linki zewnętrzne; bibliografia; uwagi; źródła
referenser; källor; se även; externa länkar; noter; litteratur; fotnoter; vidare läsning;
noter och referenser
referanser; se også; eksterne lenker; eksterne henvisninger; kilder; referencer; noter; litteratur
lähteet; katso myös; aiheesta muualla; viitteet; kirjallisuutta; viitteet ja lähteet
reference; související články; externí odkazy; literatura; poznámky; zdroje; odkazy
referencie; pozri aj; externé odkazy; literatúra; poznámky; iné projekty
jegyzetek; források; lásd még; további információk; külső hivatkozások; irodalom; kapcsolódó cikkek
referințe; note; vezi și; legături externe; bibliografie; note bibliografice; lectură suplimentară
referències; vegeu també; enllaços externs; bibliografia; notes; bibliografia addicional
kaynakça; ayrıca bakınız; dış bağlantılar; notlar; kaynaklar; konuyla ilgili yayınlar; dipnotlar
tham khảo; chú thích; xem thêm; liên kết ngoài; thư mục; ghi chú; nguồn tham khảo; đọc thêm
referensi; pranala luar; lihat pula; lihat juga; catatan kaki; catatan; daftar pustaka;
bacaan lanjutan; rujukan; pautan luar
примечания; ссылки; литература; см. также; источники; библиография; сноски; примечание;
использованная литература; использованные источники; галерея
примітки; посилання; література; див. також; джерела; виноски; зовнішні посилання; галерея
заўвагі; крыніцы; спасылкі; літаратура; гл. таксама; зноскі
бележки; източници; външни препратки; вижте също; литература; бележки и източници; галерия
референце; извори; види још; спољашње везе; литература; напомене; галерија; поврзано; наводи;
надворешни врски
παραπομπές; πηγές; δείτε επίσης; εξωτερικοί σύνδεσμοι; βιβλιογραφία; σημειώσεις
ծանոթագրություններ; արտաքին հղումներ; գրականություն; տես նաև; աղբյուրներ
სქოლიო; ლიტერატურა; რესურსები ინტერნეტში; იხილეთ აგრეთვე
הערות שוליים; קישורים חיצוניים; ראו גם; לקריאה נוספת; מקורות; ביבליוגרפיה
مراجع; المراجع; مصادر; المصادر; وصلات خارجية; روابط خارجية; انظر أيضا; انظر أيضًا; اقرأ أيضا;
طالع أيضا; هوامش; ملاحظات; مراجع ومصادر; معرض صور; المصادر والمراجع
منابع; پانویس; جستارهای وابسته; پیوند به بیرون; پیوندهای بیرونی; یادداشت‌ها; کتاب‌شناسی; نگارخانه
سرچاوەکان; حوالہ جات; بیرونی روابط; مزید دیکھیے
सन्दर्भ; संदर्भ; बाहरी कड़ियाँ; इन्हें भी देखें; यह भी देखें; टिप्पणी; बाहरी कड़ी; स्रोत
তথ্যসূত্র; বহিঃসংযোগ; আরও দেখুন; টীকা; আরও পড়ুন
மேற்கோள்கள்; வெளி இணைப்புகள்; இவற்றையும் பார்க்கவும்; மూలాలు; బయటి లింకులు; ఇవి కూడా చూడండి
อ้างอิง; แหล่งข้อมูลอื่น; ดูเพิ่ม; เชิงอรรถ; หมายเหตุ; รายการอ้างอิง; บรรณานุกรม
각주; 외부 링크; 같이 보기; 참고 문헌; 참고 자료; 참고; 출처; 주석; 관련 항목
脚注; 出典; 参考文献; 関連項目; 外部リンク; 注釈; 注釈・出典; 関連文献; 参照; 注; ギャラリー;
脚注・出典
参考资料; 參考資料; 参考文献; 參考文獻; 外部链接; 外部連結; 外部鏈接; 外部连结; 参见; 參見;
参看; 參看; 注释; 註釋;;
注釋; 脚注; 腳註; 相关条目; 相關條目; 延伸阅读; 延伸閱讀; 来源; 來源; 参考; 參考; 註解; 备注;
備註; 資料來源; 参考来源
fontes e referencias; ligazóns externas; véxase tamén; erreferentziak; kanpo estekak; ikus, gainera;
viited; välislingid; vaata ka; atsauces; ārējās saites; skatīt arī; verīs taipoš; šaltiniai;
nuorodos; reference;
vanjske poveznice; vanjske veze; povezano; spoljašnje veze; vidi još; izvori; literatura; viri;
zunanje povezave; glej tudi; referoj; vidu ankaŭ; eksteraj ligiloj; notoj; verwysings;
eksterne skakels
istinadlar; xarici keçidlər; həmçinin bax; дереккөздер; сілтемелер; тағы қараңыз
"""

# Languages with a Wikipedia: `[[xx:Title]]` links to the same article there, without visible text.
_LANGUAGES = """
aa ab ace ady af ak als am an ang ar arc arz as ast atj av avk awa ay az azb ba ban bar bat-smg bcl
be be-tarask be-x-old bg bh bi bjn bm bn bo bpy br bs bug bxr ca cbk-zam cdo ce ceb ch cho chr chy
ckb co cr crh cs csb cu cv cy da de din diq dsb dty dv dz ee el eml en eo es et eu ext fa ff fi
fiu-vro fj fo fr frp frr fur fy ga gag gan gcr gd gl glk gn gom gor got gu gv ha hak haw he hi hif
ho hr hsb ht hu hy hyw hz ia id ie ig ii ik ilo inh io is it iu ja jam jbo jv ka kaa kab kbd kbp kg
ki kj kk kl km kn ko koi kr krc ks ksh ku kv kw ky la lad lb lbe lez lfn lg li lij lld lmo ln lo
lrc lt ltg lv mai map-bms mdf mg mh mhr mi min mk ml mn mnw mo mr mrj ms mt mus mwl my myv mzn na
nah nap nds nds-nl ne new ng nl nn no nov nqo nrm nso nv ny oc olo om or os pa pag pam pap pcd pdc
pfl pi pih pl pms pnb pnt ps pt qu rm rmy rn ro roa-rup roa-tara ru rue rw sa sah sat sc scn sco sd
se sg sh shn shi si simple sk sl sm sn so sq sr srn ss st stq su sv sw szl szy ta tcy te tet tg th
ti tk tl tn to tpi tr ts tt tum tw ty tyv udm ug uk ur uz ve vec vep vi vls vo wa war wo wuu xal xh
xmf yi yo za zea zh zh-classical zh-min-nan zh-yue zu
"""

FILES = tuple(name.replace("_", " ") for name in _FILES.split())
CATEGORIES = tuple(name.replace("_", " ") for name in _CATEGORIES.split())
LANGUAGES = tuple(_LANGUAGES.split())
REDIRECTS = tuple(_REDIRECTS.split())
LINK_SECTIONS = frozenset(
    title.strip().casefold() for line in _LINK_SECTIONS.splitlines() for title in line.split(";")
) - {""}
